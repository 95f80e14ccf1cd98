"""Playing a placement: loads that change, requests that wait."""
