"""MQTT-SN sessions: the engine for all wire profiles, one virtual connection for each client."""
