"""Repair plans and the parts that planners share: problems, shares, trees and the linear program."""
