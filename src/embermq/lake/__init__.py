"""The lake: tables that are made from the log of a server. Nothing here imports Spark, which is one engine for them."""
