"""Predictions for people and programs: table, JSON, CSV, Chrome trace, plot and web page."""
