"""Models: endpoints, the client, limits, retries, dialects, the embedded model and roles."""
