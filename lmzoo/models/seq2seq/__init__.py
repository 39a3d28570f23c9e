"""Sequence to sequence: recurrent with and without attention, Transformers, span corruption."""
