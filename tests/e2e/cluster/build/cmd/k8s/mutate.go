// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	policyv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

var (
	podKind     = corev1.SchemeGroupVersion.WithKind("Pod")
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	declared    = cel.OptionalVariableDeclarations{HasAuthorizer: true}
)

// newMutateCommand is the API server's own code for a MutatingAdmissionPolicy without a server: what its
// JSON patches make of each pod that is created. Selectors are not looked at.
func newMutateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mutate",
		Short: `Reads {"policy": …, "pods": […]}, prints {"pods": […]}; null for a pod that no condition lets in`,
		RunE: func(command *cobra.Command, _ []string) error {
			return mutate(command.InOrStdin(), command.OutOrStdout())
		},
	}
}

func mutate(in io.Reader, out io.Writer) error {
	var given struct {
		Policy policyv1.MutatingAdmissionPolicy `json:"policy"`
		Pods   []corev1.Pod                     `json:"pods"`
	}
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		return err
	}
	made := make([]runtime.Object, 0, len(given.Pods))
	for i := range given.Pods {
		pod, err := mutatePod(&given.Policy, &given.Pods[i])
		if err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
		made = append(made, pod)
	}
	return json.NewEncoder(out).Encode(map[string]any{"pods": made})
}

// As compilePolicy and the dispatcher of k8s.io/apiserver do, which are not exported.
func mutatePod(policy *policyv1.MutatingAdmissionPolicy, pod *corev1.Pod) (runtime.Object, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	variables := make([]cel.NamedExpressionAccessor, 0, len(policy.Spec.Variables))
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	conditions := make([]cel.ExpressionAccessor, 0, len(policy.Spec.MatchConditions))
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(
		compiler.CompileCondition(conditions, declared, environment.StoredExpressions),
		policy.Spec.FailurePolicy, "policy", "mutate", policy.Name)
	ctx := compiler.CreateContext(context.Background())
	// One for both: the conditions leave the pod in another form for the patches.
	given := attributes(pod)
	found := matcher.Match(ctx, given, nil, nil)
	if found.Error != nil || !found.Matches {
		return nil, found.Error
	}
	return applyPatches(ctx, compiler, policy, given)
}

func applyPatches(ctx context.Context, compiler *cel.CompositedCompiler,
	policy *policyv1.MutatingAdmissionPolicy, given *admission.VersionedAttributes) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	typed := declared
	typed.HasPatchTypes = true
	for _, mutation := range policy.Spec.Mutations {
		expression := &patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}
		evaluator := compiler.CompileMutatingEvaluator(expression, typed, environment.StoredExpressions)
		made, err := patch.NewJSONPatcher(evaluator).Patch(ctx, patch.Request{
			MatchedResource:     podResource,
			VersionedAttributes: given,
			ObjectInterfaces:    admission.NewObjectInterfacesFromScheme(scheme),
			Namespace:           &corev1.Namespace{},
		}, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return nil, err
		}
		given.UpdateObject(made)
	}
	return given.VersionedObject.Object(), nil
}

func attributes(pod runtime.Object) *admission.VersionedAttributes {
	pod.GetObjectKind().SetGroupVersionKind(podKind)
	record := admission.NewAttributesRecord(pod, nil, podKind, "", "", podResource, "", admission.Create,
		&metav1.CreateOptions{}, false, nil)
	return &admission.VersionedAttributes{
		Attributes:         record,
		VersionedKind:      podKind,
		VersionedObject:    admission.NewLazyObject(pod),
		VersionedOldObject: admission.NewLazyObject(nil),
	}
}
