"""Staging: the step that stages a batch's mutations as Parquet, and the files that it leaves."""
