"""Alerts: plain rules about a metric or a silent topic, what each is now, and whom a change is told."""
