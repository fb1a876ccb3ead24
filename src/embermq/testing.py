"""A real broker for a test: the `mqtt_broker` pytest fixture."""
