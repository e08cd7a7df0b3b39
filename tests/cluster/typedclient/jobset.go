package main

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobSet is upstream's v1alpha2 as a Go client knows it: fields that only this project has are not in it.
type JobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   JobSetSpec     `json:"spec,omitempty"`
	Status map[string]any `json:"status,omitempty"`
}

type JobSetSpec struct {
	ReplicatedJobs          []ReplicatedJob     `json:"replicatedJobs,omitempty"`
	Network                 *Network            `json:"network,omitempty"`
	SuccessPolicy           *SuccessPolicy      `json:"successPolicy,omitempty"`
	FailurePolicy           *FailurePolicy      `json:"failurePolicy,omitempty"`
	StartupPolicy           *StartupPolicy      `json:"startupPolicy,omitempty"`
	Suspend                 *bool               `json:"suspend,omitempty"`
	Coordinator             *Coordinator        `json:"coordinator,omitempty"`
	ManagedBy               *string             `json:"managedBy,omitempty"`
	TTLSecondsAfterFinished *int32              `json:"ttlSecondsAfterFinished,omitempty"`
	VolumeClaimPolicies     []VolumeClaimPolicy `json:"volumeClaimPolicies,omitempty"`
}

type ReplicatedJob struct {
	Name      string                  `json:"name"`
	GroupName string                  `json:"groupName,omitempty"`
	Template  batchv1.JobTemplateSpec `json:"template"`
	Replicas  int32                   `json:"replicas,omitempty"`
	DependsOn []DependsOn             `json:"dependsOn,omitempty"`
}

type DependsOn struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

type Network struct {
	EnableDNSHostnames       *bool  `json:"enableDNSHostnames,omitempty"`
	Subdomain                string `json:"subdomain,omitempty"`
	PublishNotReadyAddresses *bool  `json:"publishNotReadyAddresses,omitempty"`
}

type SuccessPolicy struct {
	Operator             string   `json:"operator"`
	TargetReplicatedJobs []string `json:"targetReplicatedJobs,omitempty"`
}

type FailurePolicy struct {
	MaxRestarts     int32               `json:"maxRestarts,omitempty"`
	RestartStrategy string              `json:"restartStrategy,omitempty"`
	Rules           []FailurePolicyRule `json:"rules,omitempty"`
}

type FailurePolicyRule struct {
	Name                        string   `json:"name"`
	Action                      string   `json:"action"`
	OnJobFailureReasons         []string `json:"onJobFailureReasons,omitempty"`
	OnJobFailureMessagePatterns []string `json:"onJobFailureMessagePatterns,omitempty"`
	TargetReplicatedJobs        []string `json:"targetReplicatedJobs,omitempty"`
}

type StartupPolicy struct {
	StartupPolicyOrder string `json:"startupPolicyOrder"`
}

type Coordinator struct {
	ReplicatedJob string `json:"replicatedJob"`
	JobIndex      int    `json:"jobIndex,omitempty"`
	PodIndex      int    `json:"podIndex,omitempty"`
}

type VolumeClaimPolicy struct {
	Templates       []corev1.PersistentVolumeClaim `json:"templates,omitempty"`
	RetentionPolicy *RetentionPolicy               `json:"retentionPolicy,omitempty"`
}

type RetentionPolicy struct {
	WhenDeleted *string `json:"whenDeleted,omitempty"`
}

func (j *JobSet) suspended() bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }
