"""Pure functions of tensors: no state; and how parameters are made."""
