"""Resource Manager: the project, its number, and its policy."""

from __future__ import annotations

from typing import Any

from google.cloud import resourcemanager_v3
from google.cloud.resourcemanager_v3.services.projects.transports import ProjectsGrpcTransport

from tests.deploy.google_services.iam_policies import PolicyMethods
from tests.deploy.google_services.refusals import permission_denied


class Projects(PolicyMethods):
    """The one project that there is; of any other it is not said whether it exists."""

    name = "google.cloud.resourcemanager.v3.Projects"
    transports = (ProjectsGrpcTransport,)

    def get_project(self, request: Any) -> resourcemanager_v3.Project:
        known = (f"projects/{self.world.project}", f"projects/{self.world.number}")
        if request.name not in known:
            raise permission_denied("resourcemanager.projects.get", request.name)
        return resourcemanager_v3.Project(
            name=f"projects/{self.world.number}",
            project_id=self.world.project,
            state=resourcemanager_v3.Project.State.ACTIVE,
        )
