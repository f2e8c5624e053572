"""Dead letters that are sent again: jobs that the broker keeps and resumes."""
