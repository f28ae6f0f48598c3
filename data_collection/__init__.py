"""Measurements for gnnperf: importers of public ones, and campaigns that measure this machine."""
