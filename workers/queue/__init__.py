"""The queue: Celery workers that claim, score and record items."""
