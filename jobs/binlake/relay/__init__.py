"""Subscriptions: clients register by name, say what they want, and poll events of the mirror's staging one by one."""
