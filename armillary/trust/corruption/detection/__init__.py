"""From counters to alarms, and how alarms are judged."""
