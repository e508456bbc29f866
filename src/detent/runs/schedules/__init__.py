"""Schedules: `times` turns a schedule into moments, `due` decides what to do now (pure), `runner` does it and survives restarts."""
