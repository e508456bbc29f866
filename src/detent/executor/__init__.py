"""Runs jobs: the sandbox, and one runner for each type of job."""
