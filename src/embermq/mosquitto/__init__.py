"""Moving from Mosquitto: its settings, users and access lists, and its database of retained messages and sessions."""
