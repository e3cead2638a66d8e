"""The language-model judge: prompt, compact model, scoring and training.

Torch and transformers are imported when they are used.
"""
