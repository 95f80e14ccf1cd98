"""Trust: do distributed parties provably agree, is an outsourced answer right, did the hardware compute something wrong?"""
