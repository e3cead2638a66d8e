"""The protocol: splits to scores, certificate, audit and decisions, with the TEST ledger between them and the labels that count."""
