"""The search for better rubrics without a model: objectives, operators, selection. Needs the extra ``judging``."""
