"""Resources about the pipeline: how far its jobs are, and what its tables hold."""
