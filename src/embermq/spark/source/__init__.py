"""The log as a Spark data source."""
