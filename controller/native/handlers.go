package native

// handlers maps every operation of the document to what serves it.
func handlers() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GetVersion":      getVersion,
		"GetWhoAmI":       getWhoAmI,
		"GetFeatureGates": getFeatureGates,
		"ListClusters":    listClusters,

		"ListSandboxEnvs":  listEnvs,
		"CreateSandboxEnv": createEnv,
		"GetSandboxEnv":    getEnv,
		"UpdateSandboxEnv": updateEnv,
		"DeleteSandboxEnv": deleteEnv,

		"ListEnvSandboxPools":  listPools,
		"CreateEnvSandboxPool": createPool,
		"GetEnvSandboxPool":    getPool,
		"UpdateEnvSandboxPool": updatePool,
		"DeleteEnvSandboxPool": deletePool,

		"GetEnvAutoscaling":         getAutoscaling,
		"ListEnvAutoscalingGroups":  listGroups,
		"GetEnvAutoscalingGroup":    getGroup,
		"UpdateEnvAutoscalingGroup": updateGroup,
		"DeleteEnvAutoscalingGroup": deleteGroup,

		"ListEnvEvents": listEvents,

		"ListSandboxes":          listSandboxes,
		"CreateSandbox":          createSandbox,
		"GetSandbox":             getSandbox,
		"DeleteSandbox":          deleteSandbox,
		"SetSandboxTimeout":      setSandboxTimeout,
		"GetSandboxLogs":         getSandboxLogs,
		"CreateSandboxExecToken": createExecToken,
		"IsSandboxReady":         isSandboxReady,
		"ExecSandboxCommand":     execCommand,

		"ListSandboxTemplates": listTemplates,
		"GetSandboxTemplate":   getTemplate,

		"ListInstanceTypes": listInstanceTypes,
		"ListQuotas":        listQuotas,
		"ListVolumes":       listVolumes,

		"SelfListAPIKeys":  listOwnKeys,
		"SelfCreateAPIKey": createOwnKey,
		"SelfDeleteAPIKey": deleteOwnKey,

		"ListAPIKeys":   listAllKeys,
		"CreateAPIKey":  createAnyKey,
		"DeleteAPIKey":  deleteAnyKey,
		"PromoteAPIKey": promoteKey,

		"ListApprovals":       listApprovals,
		"GetApproval":         getApproval,
		"DecideApproval":      decideApproval,
		"RevokeApprovalGrant": revokeGrant,

		"ListTeams":       listTeams,
		"ListUsersByTeam": listUsers,
		"ListNamespaces":  listNamespaces,

		"GetUserSandboxStatistics":  getOwnStatistics,
		"AdminGetSandboxStatistics": getAllStatistics,

		"AdminListSandboxTemplates":  adminListTemplates,
		"AdminCreateSandboxTemplate": adminCreateTemplate,
		"AdminGetSandboxTemplate":    adminGetTemplate,
		"AdminUpdateSandboxTemplate": adminUpdateTemplate,
		"AdminDeleteSandboxTemplate": adminDeleteTemplate,
	}
}
