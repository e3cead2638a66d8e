"""The language-model judge: prompt, compact model, scoring and training."""
