"""The HTTP interface: what operators, programs and Prometheus ask of a running server."""
