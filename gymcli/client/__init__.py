"""Asks endpoints for messages: HTTP, limits, retries, outages, and where endpoints are named."""
