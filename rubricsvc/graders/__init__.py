"""OpenAI's graders: their JSON, their results and the rubrics that they become."""
