"""Every fault, by name."""

from inplace.simulator.campaign import faults_api, faults_nodes, faults_programs, faults_users
from inplace.simulator.campaign.fault import ENTERED, Fault, FaultSite

__all__ = ["CATALOGUE", "MODULES", "Fault", "FaultSite"]

MODULES = (faults_api, faults_nodes, faults_programs, faults_users)  # in this order, whichever was imported first
CATALOGUE: dict[str, Fault] = {name: one for module in MODULES for name, one in ENTERED[module.__name__].items()}
