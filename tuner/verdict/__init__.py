"""What a study's launches prove: its noise, how often to repeat, whether the best is really faster.

Pure statistics over logarithms of scores, in which a gain is a difference and noise is the same for slow and
fast configurations. Nothing is launched here and nothing is drawn: the same launches give the same verdict.
"""
