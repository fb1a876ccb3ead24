"""What the README's figures come from: EmberMQ beside Mosquitto, in one interleaved run."""
