"""EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable."""

__version__ = "0.1.0"
