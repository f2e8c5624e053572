"""Sends dead letters again, by jobs that the broker saves and resumes."""
