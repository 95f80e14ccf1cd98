"""How days are split, how alarms are raised, and how they are counted."""
