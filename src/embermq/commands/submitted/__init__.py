"""The program that spark-submit runs, alone in its folder: Spark puts the folder on the path of modules."""
