"""MQTT-SN 1.2 and 2.0 in datagrams."""
