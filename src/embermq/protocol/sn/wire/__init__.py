"""MQTT-SN packets and their bytes: layouts, framing, one table for each wire profile."""
