"""Webhooks: endpoints and deliveries; push subscriptions of browsers."""
