"""Models of token representations: one-hot vectors, word2vec and ELMo."""
