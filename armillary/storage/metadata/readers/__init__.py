"""A user's trees and operations."""
