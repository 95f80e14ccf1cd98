"""How well a ranking agrees with the judge, and what each part of QoSFlow brings."""
