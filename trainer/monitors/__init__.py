"""Monitors of a training run: is its reward still worth climbing?"""
