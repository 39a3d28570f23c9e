"""Parts that several families share: embeddings, learned initial states."""
