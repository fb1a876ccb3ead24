"""MQTT 3.1 and 3.1.1 on a byte stream."""
