"""Operator families and their registrations."""
