"""Word statistics of texts."""

from wordcount.comparing import common_words, similarity
from wordcount.counting import count_words, frequency, top_words
from wordcount.splitting import sentences, words

__all__ = [
    "common_words",
    "count_words",
    "frequency",
    "sentences",
    "similarity",
    "top_words",
    "words",
]
