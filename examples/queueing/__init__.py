"""An arena from nothing: which order of jobs on one machine lets people wait least?"""
