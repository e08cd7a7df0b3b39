"""Every fault, by name."""

from inplace.simulator.campaign import faults_api, faults_nodes, faults_programs, faults_users
from inplace.simulator.campaign.fault import CATALOGUE, Fault, FaultSite

__all__ = ["CATALOGUE", "MODULES", "Fault", "FaultSite"]

MODULES = (faults_api, faults_programs, faults_nodes, faults_users)
